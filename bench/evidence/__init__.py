"""`python -m bench.evidence`: run everything that can be counted, and write it into docs/.

Pages say where a figure goes: everything between `<!-- measured: NAME -->` and
`<!-- end -->` comes from one run, which also draws the pictures. The text around it is written
by people.
"""
