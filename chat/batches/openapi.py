"""Files and batches as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.views import APIView

from chat.api.openapi.answers import ErrorBody, shaped
from chat.batches.batch_views import BatchRequest
from chat.batches.models import BatchStatus, Purpose
from chat.batches.services import ENDPOINTS
from chat.batches.upload import EXPIRES_AFTER, UPLOAD_PURPOSES

INSTANT = {"type": ["integer", "null"]}
AFTER = OpenApiParameter("after", str, description="The id that the page before ended with.")


class Upload(serializers.Serializer):
    file = serializers.FileField()
    purpose = serializers.ChoiceField(choices=UPLOAD_PURPOSES)
    expires_after = shaped(
        EXPIRES_AFTER.json_schema, "As two parts, expires_after[anchor] and expires_after[seconds].", required=False
    )


class FileBody(serializers.Serializer):
    id = serializers.CharField()
    object = serializers.ChoiceField(choices=["file"])
    bytes = serializers.IntegerField()
    created_at = serializers.IntegerField(help_text="Unix seconds.")
    expires_at = shaped(INSTANT, "Null: kept until it is deleted.")
    filename = serializers.CharField()
    purpose = serializers.ChoiceField(choices=Purpose.values)
    status = serializers.ChoiceField(choices=["processed"])
    status_details = shaped({"type": "null"})


class PageBody(serializers.Serializer):
    object = serializers.ChoiceField(choices=["list"])
    first_id = serializers.CharField(allow_null=True)
    last_id = serializers.CharField(allow_null=True)
    has_more = serializers.BooleanField()


class FileList(PageBody):
    data = FileBody(many=True)


class DeletedFile(serializers.Serializer):
    id = serializers.CharField()
    object = serializers.ChoiceField(choices=["file"])
    deleted = serializers.BooleanField()


class BatchErrorBody(serializers.Serializer):
    code = serializers.CharField()
    line = serializers.IntegerField(allow_null=True)
    message = serializers.CharField()
    param = serializers.CharField(allow_null=True)


class BatchErrors(serializers.Serializer):
    object = serializers.ChoiceField(choices=["list"])
    data = BatchErrorBody(many=True)


class RequestCounts(serializers.Serializer):
    total = serializers.IntegerField()
    completed = serializers.IntegerField()
    failed = serializers.IntegerField()


class InputTokensDetails(serializers.Serializer):
    cached_tokens = serializers.IntegerField()


class OutputTokensDetails(serializers.Serializer):
    reasoning_tokens = serializers.IntegerField()


class BatchUsage(serializers.Serializer):
    input_tokens = serializers.IntegerField()
    input_tokens_details = InputTokensDetails()
    output_tokens = serializers.IntegerField()
    output_tokens_details = OutputTokensDetails()
    total_tokens = serializers.IntegerField()


class BatchBody(serializers.Serializer):
    id = serializers.CharField()
    object = serializers.ChoiceField(choices=["batch"])
    endpoint = serializers.ChoiceField(choices=ENDPOINTS)
    model = serializers.CharField(allow_null=True, help_text="What all lines ask for.")
    errors = BatchErrors(allow_null=True)
    input_file_id = serializers.CharField()
    completion_window = serializers.CharField()
    status = serializers.ChoiceField(choices=BatchStatus.values)
    output_file_id = serializers.CharField(allow_null=True)
    error_file_id = serializers.CharField(allow_null=True)
    created_at = serializers.IntegerField(help_text="Unix seconds, as all instants.")
    in_progress_at = shaped(INSTANT)
    expires_at = serializers.IntegerField()
    finalizing_at = shaped(INSTANT)
    completed_at = shaped(INSTANT)
    failed_at = shaped(INSTANT)
    expired_at = shaped(INSTANT)
    cancelling_at = shaped(INSTANT)
    cancelled_at = shaped(INSTANT)
    request_counts = RequestCounts()
    usage = BatchUsage(allow_null=True)
    metadata = shaped({"type": ["object", "null"], "additionalProperties": {"type": "string"}})


class BatchList(PageBody):
    data = BatchBody(many=True)


def _answers(body: Any, *errors: int) -> dict[Any, Any]:
    return {200: body, **{status: OpenApiResponse(ErrorBody) for status in (401, 403, *errors, 429, 500)}}


class FilesRoute(APIView):
    @extend_schema(
        operation_id="create_file",
        summary="Upload a file",
        request={"multipart/form-data": Upload},
        responses=_answers(FileBody, 400, 413),
        tags=["files"],
    )
    def post(self, request: HttpRequest) -> None:
        """Keep a file for batches or for yourself."""

    @extend_schema(
        operation_id="list_files",
        summary="List files",
        parameters=[
            OpenApiParameter("purpose", str),
            OpenApiParameter("limit", int),
            OpenApiParameter("order", str),
            AFTER,
        ],
        responses=_answers(FileList, 400),
        tags=["files"],
    )
    def get(self, request: HttpRequest) -> None:
        """The files of the key's project, the newest first."""


class FileRoute(APIView):
    @extend_schema(operation_id="retrieve_file", summary="One file", responses=_answers(FileBody, 404), tags=["files"])
    def get(self, request: HttpRequest, file_id: str) -> None:
        """A file without its content."""

    @extend_schema(
        operation_id="delete_file", summary="Delete a file", responses=_answers(DeletedFile, 400, 404), tags=["files"]
    )
    def delete(self, request: HttpRequest, file_id: str) -> None:
        """Forget a file at once."""


class FileContentRoute(APIView):
    @extend_schema(
        operation_id="download_file",
        summary="Content of a file",
        responses={(200, "application/octet-stream"): OpenApiTypes.BINARY, 404: OpenApiResponse(ErrorBody)},
        tags=["files"],
    )
    def get(self, request: HttpRequest, file_id: str) -> None:
        """The bytes as they were sent, or the lines that a batch has put out."""


class BatchesRoute(APIView):
    @extend_schema(
        operation_id="create_batch",
        summary="Create a batch",
        request=BatchRequest,
        responses=_answers(BatchBody, 400, 404, 413),
        tags=["batches"],
    )
    def post(self, request: HttpRequest) -> None:
        """Have the requests in a file answered when there is time."""

    @extend_schema(
        operation_id="list_batches",
        summary="List batches",
        parameters=[OpenApiParameter("limit", int), AFTER],
        responses=_answers(BatchList, 400),
        tags=["batches"],
    )
    def get(self, request: HttpRequest) -> None:
        """The batches of the key's project, the newest first."""


class BatchRoute(APIView):
    @extend_schema(
        operation_id="retrieve_batch", summary="One batch", responses=_answers(BatchBody, 404), tags=["batches"]
    )
    def get(self, request: HttpRequest, batch_id: str) -> None:
        """How far a batch is, and where its answers are."""


class BatchCancelRoute(APIView):
    @extend_schema(
        operation_id="cancel_batch",
        summary="Cancel a batch",
        request=None,
        responses=_answers(BatchBody, 400, 404),
        tags=["batches"],
    )
    def post(self, request: HttpRequest, batch_id: str) -> None:
        """Stop what runs and send no more; what is answered stays."""


urlpatterns = [
    path("v1/files", FilesRoute.as_view()),
    path("v1/files/<str:file_id>", FileRoute.as_view()),
    path("v1/files/<str:file_id>/content", FileContentRoute.as_view()),
    path("v1/batches", BatchesRoute.as_view()),
    path("v1/batches/<str:batch_id>", BatchRoute.as_view()),
    path("v1/batches/<str:batch_id>/cancel", BatchCancelRoute.as_view()),
]
