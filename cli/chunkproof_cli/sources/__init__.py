"""What people have instead of a manifest: folders of documents, and what frameworks keep of an ingestion."""
