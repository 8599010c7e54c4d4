"""What people look at: reports made from a store, outside of it."""
