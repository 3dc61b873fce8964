from django.urls import path

from inference.views import ModelViewSet

urlpatterns = [
    path("models", ModelViewSet.as_view({"get": "list"})),
    # Ids hold slashes, and servers decode %2F before they route.
    path("models/<path:model>", ModelViewSet.as_view({"get": "retrieve"})),
]
