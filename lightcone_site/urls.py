"""The URL table of the installation: API and its documentation, playground, console."""

from django.contrib import admin
from django.urls import include, path

from chat.access.sign_in_form import console_login

urlpatterns = [
    path("", include("chat.urls")),
    path("admin/login/", console_login),
    path("admin/", admin.site.urls),
    path("", include("chat.playground.urls")),
]

handler500 = "chat.playground.pages.server_error"
