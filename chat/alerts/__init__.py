"""Alerts: rules on conditions, one notice an episode, channels by webhook and e-mail, deliveries with retries."""
