"""The parts of `manage.py serve`: prepare an installation, start its processes, restart those that die, stop them all.

The supervisor imports no Django. What needs it runs in a child process that the supervisor asks through a socket:

serving         the supervisor's program, from the lock to the last process
supervisor      the main loop; child, launch: one supervised process
readiness       how far model and web are; console: the lines that the operator sees
lock            the data directory and the port, which only one supervisor can hold
embedded_valkey the Valkey that comes with the installation
django_process  the supervisor's side of the child process with Django; preparation: the other side
diagnosis       `manage.py doctor`
"""
