"""JobSpec -> the file another system runs. One module per system, with `render(spec, options)`."""
