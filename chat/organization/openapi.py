"""The routes of /v1/organization, described."""

from __future__ import annotations

from chat.access.roles import Role
from chat.api.openapi.describe import requests, routes
from chat.api.openapi.notation import components, one_of
from chat.organization.bodies import (
    AdminKeyCreate,
    InviteCreate,
    ProjectCreate,
    ProjectModify,
    ProjectUserAdd,
    ProjectUserModify,
    RateLimitModify,
    ServiceAccountCreate,
    ServiceAccountKeyCreate,
    ServiceAccountModify,
    UserModify,
)

SCHEMAS = requests(
    *(AdminKeyCreate, InviteCreate, ProjectCreate, ProjectModify, ProjectUserAdd, ProjectUserModify),
    *(ServiceAccountCreate, ServiceAccountModify, ServiceAccountKeyCreate, UserModify, RateLimitModify),
) | components(
    """
    end = integer | null
    AdminApiKey = {
        id: string "key_ and the key id."; object: 'organization.admin_api_key'; name: string;
        redacted_value: string; created_at: seconds; expires_at, last_used_at: end;
        owner: {type: 'user'; object: 'organization.user'; id, name: string; created_at: seconds; role: string}
            | null "Null: the account of who made it is gone, and the key is refused."
    }
    AdminApiKeyMade = {
        id: string; object: 'organization.admin_api_key'; name: string; redacted_value: string;
        created_at: seconds; expires_at, last_used_at: end; owner: object;
        value: string "The key. It is shown here alone."
    }
    AdminApiKeyList = {...page; data: [AdminApiKey]}
    OrganizationProject = {
        id: string "proj_ and a number."; object: 'organization.project'; name: string; created_at: seconds;
        archived_at: end; status: 'active' | 'archived'
    }
    OrganizationProjectList = {...page; data: [OrganizationProject]}
    ProjectUser = {
        id: string "user- and a number."; object: 'organization.project.user'; name, email: string;
        role: 'owner' | 'member'; added_at: integer "Unix seconds, of the organisation."
    }
    ProjectUserList = {...page; data: [ProjectUser]}
    OrganizationUser = {
        id: string; object: 'organization.user'; name, email: string; role: role; added_at, created: seconds;
        is_service_account: boolean;
        user: {id: string; object: 'user'; name, email: string; enabled: boolean}
    }
    OrganizationUserList = {...page; data: [OrganizationUser]}
    invite = {
        id: string "invite- and a number."; object: 'organization.invite'; email: string; role: role;
        status: 'pending' | 'accepted' | 'expired'; created_at, expires_at: seconds; accepted_at: end;
        projects: [{id: string; role: 'owner' | 'member'}]
    }
    OrganizationInvite = {...invite}
    OrganizationInviteMade = {
        ...invite; link: string "It makes the account, once. It is shown here alone.";
        mail_error: string | null "Why the link was not sent; null: it was."
    }
    OrganizationInviteList = {...page; data: [OrganizationInvite]}
    account_key = {
        id: string; object: 'organization.project.service_account.api_key'; name: string; created_at: seconds;
        expires_at: end; value: string "The key. It is shown here alone."
    }
    account = {
        id: string "svc_acct_ and a number."; object: 'organization.project.service_account'; name: string;
        role: 'member'; created_at: seconds
    }
    ServiceAccount = {...account}
    ServiceAccountKey = {...account_key}
    ServiceAccountMade = {...account; api_key: ServiceAccountKey | null}
    ServiceAccountList = {...page; data: [ServiceAccount]}
    ProjectApiKey = {
        id: string "key_ and the key id."; object: 'organization.project.api_key'; name, redacted_value: string;
        created_at: seconds; expires_at, last_used_at, disabled_at: end;
        owner: {type: 'user' | 'service_account' | null; user?, service_account?: object};
        owner_project_access: 'active' | 'inactive'
    }
    ProjectApiKeyList = {...page; data: [ProjectApiKey]}
    RateLimit = {
        id: string; object: 'project.rate_limit'; model: string "Always *: a project's limits hold for all models.";
        max_requests_per_1_minute, max_tokens_per_1_minute, max_requests_per_1_day: integer | null
    }
    RateLimitList = {...page; data: [RateLimit]}
    group = {project_id, user_id, api_key_id: string | null}
    buckets = {object: 'page'; has_more: boolean; next_page: string | null}
    bucket = {object: 'bucket'; start_time, end_time: seconds}
    CompletionsUsage = {
        object: 'organization.usage.completions.result'; num_model_requests, input_tokens, input_cached_tokens,
        input_uncached_tokens, output_tokens: integer; ...group; model: string | null
    }
    CompletionsUsagePage = {...buckets; data: [CompletionsUsageBucket]}
    CompletionsUsageBucket = {...bucket; results: [CompletionsUsage]}
    EmbeddingsUsage = {
        object: 'organization.usage.embeddings.result'; num_model_requests, input_tokens: integer; ...group;
        model: string | null
    }
    EmbeddingsUsagePage = {...buckets; data: [EmbeddingsUsageBucket]}
    EmbeddingsUsageBucket = {...bucket; results: [EmbeddingsUsage]}
    TranscriptionsUsage = {
        object: 'organization.usage.audio_transcriptions.result'; num_model_requests: integer;
        seconds: integer "Of sound that was written down."; ...group; model: string | null
    }
    TranscriptionsUsagePage = {...buckets; data: [TranscriptionsUsageBucket]}
    TranscriptionsUsageBucket = {...bucket; results: [TranscriptionsUsage]}
    Costs = {
        object: 'organization.costs.result'; amount: {value: number; currency: string}; ...group;
        line_item: string | null "The model."
    }
    CostsPage = {...buckets; data: [CostsBucket]}
    CostsBucket = {...bucket; results: [Costs]}
    AuditLog = {
        id: string "audit_log- and a number."; type: string "A key of the same name has what was changed.";
        effective_at: seconds; actor: object; project?: {id: string; name: string | null}
    }
    AuditLogList = {...page; data: [AuditLog]}
    OrganizationDeleted = {id, object: string; deleted: boolean}
    """,
    role=one_of(*Role.values),
)
QUERY = """
    limit: integer "1 to 100, 20 where absent."; after: string "The id of the last entry of the page before.";
    order: 'asc' | 'desc'; include_archived: boolean; emails: [string];
    before: string "The id of the first entry of the page after.";
    start_time: seconds; end_time: integer "Unix seconds; absent: now.";
    bucket_width: '1h' | '1d'; page: string "next_page of the page before.";
    group_by: [string] "Of project_id, user_id, api_key_id, model; of costs line_item in place of model.";
    project_ids, user_ids, api_key_ids, models, line_items: [string];
    event_types, actor_ids, actor_emails, resource_ids: [string];
    effective_at: object "gt, gte, lt, lte: Unix seconds, as effective_at[gte]=1767225600."
"""
ERRORS = "400 401 403 404 405 409 429 500 503"
ROUTES = """
    GET /v1/organization/admin_api_keys list_admin_api_keys(after limit order) -> AdminApiKeyList
        List admin keys
    POST /v1/organization/admin_api_keys create_admin_api_key(AdminKeyCreate) -> AdminApiKeyMade
        Make an admin key. It acts as the same person, in the same networks, and ends no later.
    GET /v1/organization/admin_api_keys/{key_id} retrieve_admin_api_key() -> AdminApiKey
        One admin key
    DELETE /v1/organization/admin_api_keys/{key_id} delete_admin_api_key() -> OrganizationDeleted
        Revoke an admin key
    GET /v1/organization/projects list_projects(after limit include_archived) -> OrganizationProjectList
        List projects
    POST /v1/organization/projects create_project(ProjectCreate) -> OrganizationProject
        Make a project
    GET /v1/organization/projects/{project_id} retrieve_project() -> OrganizationProject
        One project
    POST /v1/organization/projects/{project_id} modify_project(ProjectModify) -> OrganizationProject
        Rename a project
    POST /v1/organization/projects/{project_id}/archive archive_project() -> OrganizationProject
        Archive a project. Its keys are refused; its history stays. The console restores it.
    GET /v1/organization/projects/{project_id}/users list_project_users(after limit) -> ProjectUserList
        List the members of a project
    POST /v1/organization/projects/{project_id}/users add_project_user(ProjectUserAdd) -> ProjectUser
        Add a member of the organisation to a project
    GET /v1/organization/projects/{project_id}/users/{user_id} retrieve_project_user() -> ProjectUser
        One member of a project
    POST /v1/organization/projects/{project_id}/users/{user_id} modify_project_user(ProjectUserModify) -> ProjectUser
        Confirm the role of a member. Roles are the organisation's; another one is refused.
    DELETE /v1/organization/projects/{project_id}/users/{user_id} remove_project_user() -> OrganizationDeleted
        Take a member out of a project. Keys of the person there are disabled.
    GET /v1/organization/projects/{project_id}/service_accounts list_service_accounts(after limit) -> ServiceAccountList
        List the service accounts of a project
    POST /v1/organization/projects/{project_id}/service_accounts
        create_service_account(ServiceAccountCreate) -> ServiceAccountMade
        Make a service account with its first key
    GET /v1/organization/projects/{project_id}/service_accounts/{account_id}
        retrieve_service_account() -> ServiceAccount
        One service account
    POST /v1/organization/projects/{project_id}/service_accounts/{account_id}
        modify_service_account(ServiceAccountModify) -> ServiceAccount
        Rename a service account
    DELETE /v1/organization/projects/{project_id}/service_accounts/{account_id}
        delete_service_account() -> OrganizationDeleted
        Delete a service account and its keys. Usage and log keep its name.
    POST /v1/organization/projects/{project_id}/service_accounts/{account_id}/api_keys
        create_service_account_key(ServiceAccountKeyCreate) -> ServiceAccountKey
        Make another key of a service account
    GET /v1/organization/projects/{project_id}/api_keys list_project_api_keys(after limit) -> ProjectApiKeyList
        List the API keys of a project
    GET /v1/organization/projects/{project_id}/api_keys/{key_id} retrieve_project_api_key() -> ProjectApiKey
        One API key
    DELETE /v1/organization/projects/{project_id}/api_keys/{key_id} delete_project_api_key() -> OrganizationDeleted
        Delete an API key. Usage and log keep its name.
    GET /v1/organization/projects/{project_id}/rate_limits list_rate_limits(after before limit) -> RateLimitList
        The limits of a project
    POST /v1/organization/projects/{project_id}/rate_limits/{rate_limit_id}
        modify_rate_limit(RateLimitModify) -> RateLimit
        Change limits of a project. Those that were not sent stay.
    GET /v1/organization/audit_logs list_audit_logs(after before limit effective_at project_ids event_types actor_ids
        actor_emails resource_ids) -> AuditLogList
        List the audit log. The newest first.
    GET /v1/organization/usage/completions usage_completions(start_time end_time bucket_width limit page group_by
        project_ids user_ids api_key_ids models) -> CompletionsUsagePage
        Usage of all routes that generate. In whole hours or days (UTC).
    GET /v1/organization/usage/embeddings usage_embeddings(start_time end_time bucket_width limit page group_by
        project_ids user_ids api_key_ids models) -> EmbeddingsUsagePage
        Usage of embeddings and reranking. In whole hours or days (UTC).
    GET /v1/organization/usage/audio_transcriptions usage_audio_transcriptions(start_time end_time bucket_width limit
        page group_by project_ids user_ids api_key_ids models) -> TranscriptionsUsagePage
        Usage of transcriptions and translations of speech. In whole hours or days (UTC).
    GET /v1/organization/costs list_costs(start_time end_time bucket_width limit page group_by project_ids user_ids
        api_key_ids line_items) -> CostsPage
        Costs of all routes. In whole days (UTC).
    GET /v1/organization/invites list_invites(after limit) -> OrganizationInviteList
        List invitations
    POST /v1/organization/invites create_invite(InviteCreate) -> OrganizationInviteMade
        Invite somebody. The link is mailed where the server sends mail.
    GET /v1/organization/invites/{invite_id} retrieve_invite() -> OrganizationInvite
        One invitation
    DELETE /v1/organization/invites/{invite_id} delete_invite() -> OrganizationDeleted
        Revoke an invitation that nobody has accepted
    GET /v1/organization/users list_organization_users(after limit emails) -> OrganizationUserList
        List the people of the organisation
    GET /v1/organization/users/{user_id} retrieve_organization_user() -> OrganizationUser
        One person
    POST /v1/organization/users/{user_id} modify_organization_user(UserModify) -> OrganizationUser
        Give a person another role. Nobody gives or takes a role that may more than the own one.
    DELETE /v1/organization/users/{user_id} delete_organization_user() -> OrganizationDeleted
        Take a person out of the organisation. The account and its history stay.
"""
OPERATIONS = routes(
    "organization",
    ROUTES,
    query=QUERY,
    errors=ERRORS,
    create_admin_api_key={"name": "terraform", "expires_in_seconds": 7_776_000},
    create_project={"name": "Search"},
    modify_project={"name": "Search and answers"},
    add_project_user={"user_id": "user-7", "role": "member"},
    modify_project_user={"role": "member"},
    modify_organization_user={"role": "viewer"},
    create_invite={"email": "bob@example.com", "role": "member", "projects": [{"id": "proj_1", "role": "member"}]},
    create_service_account={"name": "deploy"},
    modify_rate_limit={"max_requests_per_1_minute": 600},
    modify_service_account={"name": "release"},
    create_service_account_key={"name": "next", "expires_in_seconds": 7_776_000},
)
