"""The studio: a page in the browser to tag photographs, train, look at the masks, correct, and train again.

`server` listens, `gate` lets in who has the token, `routes` answers requests, `workshop` holds the state; `page/` is
what the browser gets. Trainings run as child processes, through the same commands that a person would type.
"""
