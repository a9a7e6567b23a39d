"""What user functions hold: state descriptors, typed handles, operator state, timers."""
