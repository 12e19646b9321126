"""The URL table of the installation: API and its documentation, playground, console."""

from django.contrib import admin
from django.urls import include, path

admin.autodiscover()  # here, as commands show no console; its pages take half of their time

urlpatterns = [
    path("", include("chat.urls")),
    path("admin/", admin.site.urls),
    path("", include("chat.access.urls")),
    path("", include("chat.playground.urls")),
]

handler500 = "chat.playground.pages.server_error"
