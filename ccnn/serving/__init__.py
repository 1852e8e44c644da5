"""A model behind HTTP: for programs, for Label Studio, and for a page where one drops a photograph.

`server` has every request; sockets, access control and the pool of processes are the studio's. `page/` is what the
browser gets.
"""
