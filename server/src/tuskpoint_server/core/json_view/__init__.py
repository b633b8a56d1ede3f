"""The JSON view: values of agents as JSON text that every language reads.

Values are walked byte by byte. No name in a value is imported, called or built; depth and size are
bounded; the view accepts any bytes. A value that JSON cannot express is *escaped*: an object with a
key that starts with one "$". Every escape is documented at `tuskpoint.v1.View.VIEW_JSON` and in
docs/json-view.md.
"""
