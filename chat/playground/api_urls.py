"""Routes of the page beside conversations, below /playground/api/."""

from django.urls import re_path

from chat.playground import api_views

urlpatterns = [
    re_path(r"^state\Z", api_views.state_view, name="playground_state"),
    re_path(r"^presets\Z", api_views.presets_view, name="playground_presets"),
    re_path(r"^presets/(?P<preset_id>[0-9]{1,18})\Z", api_views.preset_view, name="playground_preset"),
    re_path(r"^models\Z", api_views.models_view, name="playground_models"),
    re_path(r"^models/load\Z", api_views.load_view, name="playground_model_load"),
    re_path(r"^fields\Z", api_views.fields_view, name="playground_fields"),
    re_path(r"^render\Z", api_views.render_view, name="playground_render"),
    re_path(r"^check\Z", api_views.check_view, name="playground_check"),
    re_path(r"^count\Z", api_views.count_view, name="playground_count"),
]
