"""View code: a request of the page as programs that send it."""
