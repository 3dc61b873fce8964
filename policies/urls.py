from django.urls import path
from rest_framework.routers import SimpleRouter

from policies.views import EffectivePolicyViewSet, PolicyViewSet

router = SimpleRouter(trailing_slash=False)
router.register("policies", PolicyViewSet, basename="policy")
urlpatterns = [
    *router.urls,
    path("projects/<str:project_id>/effective_policies", EffectivePolicyViewSet.as_view({"get": "list"})),
]
