if [ -n "${NVIDIA_CHECK_FAILS:-}" ]; then
  echo "ERROR: this container needs another driver"
  exit "$NVIDIA_CHECK_FAILS"
fi
