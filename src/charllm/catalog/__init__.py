"""What is known of GPUs, nodes, fabrics, clusters, models, frameworks and studies: figures with their sources."""
