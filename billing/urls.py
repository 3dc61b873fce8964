from rest_framework.routers import SimpleRouter

from billing.views import CostViewSet

router = SimpleRouter(trailing_slash=False)
router.register("costs", CostViewSet, basename="cost")
urlpatterns = router.urls
