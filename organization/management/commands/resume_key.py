from organization.management.key_commands import KeyMoveCommand
from organization.services import resume_key


class Command(KeyMoveCommand):
    help = "Let a suspended key work again."
    verb = "resume"
    service = staticmethod(resume_key)
