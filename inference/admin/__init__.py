"""The console's pages of inference: importing this package registers them."""

from inference.admin import backends as backends
from inference.admin import models as models
from inference.admin import requests as requests
