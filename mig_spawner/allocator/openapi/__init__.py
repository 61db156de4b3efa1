"""The description of the API, OpenAPI 3.1, made from what is enforced.

`parameter` has what a query may hold: handlers parse with it. `operation` says what each verb does and why it may say no. `document`
puts them together with the table of routes and the documents of the wire.
"""
