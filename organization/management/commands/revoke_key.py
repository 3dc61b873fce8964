from organization.management.key_commands import KeyStatusCommand
from organization.services import revoke_key


class Command(KeyStatusCommand):
    help = "End a project or admin key for ever."
    verb = "revoke"
    service = staticmethod(revoke_key)
