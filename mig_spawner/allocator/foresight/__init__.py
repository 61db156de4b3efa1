"""What will people ask for next, and which worth of a GPU's state serves that best?

`due` says from the ledger when a new plan is to be made, `codec` writes plans as JSON, `__main__` is the process that makes them, `loop`
runs it in the background and puts the result into the ledger, `ranking` decides by it. The plan in the ledger is the only one: two
replicas that see the same ledger place alike.
"""
