"""The HTTP layer that every app uses: errors, limits, request ids, bodies. It imports no app."""
