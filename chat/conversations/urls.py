"""Routes of conversations, below /playground/api/."""

from django.urls import re_path

from chat.conversations import views

CONVERSATION = r"^conversations/(?P<conversation_id>[A-Za-z0-9-]{1,64})"

urlpatterns = [
    re_path(r"^conversations\Z", views.history_view, name="conversations"),
    re_path(r"^search\Z", views.search_view, name="conversations_search"),
    re_path(r"^folders\Z", views.folders_view, name="conversation_folders"),
    re_path(r"^facets\Z", views.facets_view, name="conversation_facets"),
    re_path(r"^import\Z", views.import_view, name="conversations_import"),
    re_path(r"^files\Z", views.files_view, name="chat_files"),
    re_path(r"^files/(?P<file_id>[a-z0-9]{1,32})\Z", views.file_view, name="chat_file"),
    re_path(r"^draft\Z", views.draft_view, name="new_chat_draft"),
    re_path(r"^delete\Z", views.delete_view, name="conversations_delete"),
    re_path(r"^restore\Z", views.restore_view, name="conversations_restore"),
    re_path(r"^change\Z", views.change_view, name="conversations_change"),
    re_path(r"^export\Z", views.export_several_view, name="conversations_export"),
    re_path(r"^shared/(?P<token>[A-Za-z0-9_-]{1,64})\Z", views.shared_view, name="shared_conversation"),
    re_path(CONVERSATION + r"\Z", views.conversation_view, name="conversation"),
    re_path(CONVERSATION + r"/turns\Z", views.turns_view, name="conversation_turns"),
    re_path(CONVERSATION + r"/turns/(?P<turn_id>[A-Za-z0-9-]{1,64})\Z", views.turn_view, name="conversation_turn"),
    re_path(CONVERSATION + r"/draft\Z", views.draft_view, name="conversation_draft"),
    re_path(CONVERSATION + r"/export\Z", views.export_view, name="conversation_export"),
    re_path(CONVERSATION + r"/links\Z", views.links_view, name="conversation_links"),
    re_path(CONVERSATION + r"/links/(?P<link_id>[0-9]{1,18})\Z", views.link_view, name="conversation_link"),
]
