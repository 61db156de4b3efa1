"""The menu at the allocator: `source` reads it, `admission` decides by it, `view` shows it. Rules hold for form, link and API alike."""
