"""The floor: plumbing that every app stands on. It imports no app."""
