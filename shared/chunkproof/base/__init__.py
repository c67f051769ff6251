"""What every room uses: errors, settings, deadlines, request traces, files."""
