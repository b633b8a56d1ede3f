"""The JSON view: values of agents as JSON text that every language reads.

Values are walked byte by byte. Nothing that they name is imported, called or built; depth and size
are bounded; no bytes make it fail. A value that JSON cannot express is *escaped*: an object with
a key that begins with one "$". Every escape is documented at `tuskpoint.v1.View.VIEW_JSON` and in
docs/json-view.md.
"""
