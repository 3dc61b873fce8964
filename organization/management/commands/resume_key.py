from organization.management.key_commands import KeyStatusCommand
from organization.services import resume_key


class Command(KeyStatusCommand):
    help = "Let a suspended key work again."
    verb = "resume"
    service = staticmethod(resume_key)
