"""The studio: a page in the browser to tag photographs, train, look at the masks, correct, and train again.

`server` listens, `access` checks the token, `routes` handles requests, `session` holds the state; `page/` is what the
browser gets. Trainings run as child processes, through the same commands that a person would type.
"""
