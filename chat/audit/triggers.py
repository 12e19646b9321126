"""The database's own refusal: no entry is changed, and none younger than a year is deleted, whatever program asks.

Migrations make these triggers. One that rebuilds the table on SQLite makes them again, as a rebuild drops them.
"""

from __future__ import annotations

LEAST_DAYS = 365
TABLE = "chat_auditentry"
MESSAGE = "audit entries are neither changed nor deleted within a year"

TRIGGERS: dict[str, tuple[str, ...]] = {
    "sqlite": (
        f"CREATE TRIGGER audit_unchanged BEFORE UPDATE ON {TABLE} BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END",
        f"CREATE TRIGGER audit_kept BEFORE DELETE ON {TABLE} "
        f"WHEN OLD.at > strftime('%Y-%m-%d %H:%M:%f', 'now', '-{LEAST_DAYS} days') "
        f"BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END",
        # INSERT OR REPLACE deletes without a trigger of DELETE.
        f"CREATE TRIGGER audit_not_replaced BEFORE INSERT ON {TABLE} "
        f"WHEN EXISTS (SELECT 1 FROM {TABLE} WHERE id = NEW.id) BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END",
    ),
    "postgresql": (
        f"""CREATE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF TG_OP = 'DELETE' THEN
                IF OLD.at <= now() - interval '{LEAST_DAYS} days' THEN
                    RETURN OLD;
                END IF;
            END IF;
            RAISE EXCEPTION '{MESSAGE}' USING ERRCODE = 'integrity_constraint_violation';
        END $$""",
        f"CREATE TRIGGER audit_kept BEFORE UPDATE OR DELETE ON {TABLE} FOR EACH ROW EXECUTE FUNCTION audit_refuse()",
        f"CREATE TRIGGER audit_not_emptied BEFORE TRUNCATE ON {TABLE} EXECUTE FUNCTION audit_refuse()",
    ),
}
"""The statements that make the refusals, by vendor."""

DROPS: dict[str, tuple[str, ...]] = {
    "sqlite": ("DROP TRIGGER audit_unchanged", "DROP TRIGGER audit_kept", "DROP TRIGGER audit_not_replaced"),
    "postgresql": (
        f"DROP TRIGGER audit_not_emptied ON {TABLE}",
        f"DROP TRIGGER audit_kept ON {TABLE}",
        "DROP FUNCTION audit_refuse()",
    ),
}
