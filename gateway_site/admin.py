"""The console's pages that belong to no app."""
