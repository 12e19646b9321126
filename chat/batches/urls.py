"""Under /v1 alone, with and without a trailing slash."""

from django.urls import re_path

from chat.batches import views

urlpatterns = [
    re_path(r"^v1/files/?\Z", views.files, name="files"),
    re_path(r"^v1/files/(?P<file_id>[^/]+)/?\Z", views.file, name="file"),
    re_path(r"^v1/files/(?P<file_id>[^/]+)/content/?\Z", views.content, name="file_content"),
    re_path(r"^v1/batches/?\Z", views.batches, name="batches"),
    re_path(r"^v1/batches/(?P<batch_id>[^/]+)/?\Z", views.batch, name="batch"),
    re_path(r"^v1/batches/(?P<batch_id>[^/]+)/cancel/?\Z", views.cancellation, name="batch_cancel"),
]
