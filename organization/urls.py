from rest_framework.routers import SimpleRouter

from organization.views import AdminKeyViewSet, ProjectViewSet

router = SimpleRouter(trailing_slash=False)
router.register("projects", ProjectViewSet, basename="project")
router.register("admin_api_keys", AdminKeyViewSet, basename="admin-key")
urlpatterns = router.urls
