"""Budgets: amounts of tokens or money by window of time, on an organisation, project, account, key or model."""
