from organization.management.key_commands import KeyMoveCommand
from organization.services import revoke_key


class Command(KeyMoveCommand):
    help = "End a project or admin key for ever."
    verb = "revoke"
    service = staticmethod(revoke_key)
