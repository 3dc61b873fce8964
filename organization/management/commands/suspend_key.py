from organization.management.key_commands import KeyStatusCommand
from organization.services import suspend_key


class Command(KeyStatusCommand):
    help = "Stop a project or admin key until it is resumed."
    verb = "suspend"
    service = staticmethod(suspend_key)
