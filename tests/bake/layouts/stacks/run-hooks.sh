#!/bin/bash
for file in "$1"/*; do
  case $file in
    *.sh) . "$file" ;;
    *) if [ -x "$file" ]; then "$file"; fi ;;
  esac
done
