"""How ranks are started: -> Plan. One module per launcher, with `plan(spec, topology, members)`, and its templates."""
