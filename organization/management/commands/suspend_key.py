from organization.management.key_commands import KeyMoveCommand
from organization.services import suspend_key


class Command(KeyMoveCommand):
    help = "Stop a project or admin key until it is resumed."
    verb = "suspend"
    service = staticmethod(suspend_key)
