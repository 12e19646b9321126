"""Under /v1 alone, with and without a trailing slash."""

from django.urls import re_path

from chat.batches import batch_views, file_views

urlpatterns = [
    re_path(r"^v1/files/?\Z", file_views.files, name="files"),
    re_path(r"^v1/files/(?P<file_id>[^/]+)/?\Z", file_views.file, name="file"),
    re_path(r"^v1/files/(?P<file_id>[^/]+)/content/?\Z", file_views.content, name="file_content"),
    re_path(r"^v1/batches/?\Z", batch_views.batches, name="batches"),
    re_path(r"^v1/batches/(?P<batch_id>[^/]+)/?\Z", batch_views.batch, name="batch"),
    re_path(r"^v1/batches/(?P<batch_id>[^/]+)/cancel/?\Z", batch_views.cancellation, name="batch_cancel"),
]
