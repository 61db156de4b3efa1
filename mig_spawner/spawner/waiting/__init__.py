"""The waiting room: what a person sees and may do between the click and the open server."""
