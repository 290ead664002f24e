//! The embedded store and the model answer every cell of the table of combinations as the oracle does.

use spile_memory::MemoryStore;
use spile_testkit::store::ModelStore;
use spile_testkit::table::{TableSummary, try_every_cell};

/// The number of cells. A change shows that combinations were added or removed.
const CELLS: TableSummary = TableSummary { tried: 5_952, refused: 15_648 };

#[tokio::test]
async fn the_embedded_store_answers_every_cell_as_the_oracle_does() {
    // One shard, and a sweep that visits every bucket, so that every bucket that may be forgotten is.
    let store = |clock| MemoryStore::builder().clock(clock).max_keys(4_096).sweep(64).build();
    assert_eq!(try_every_cell(store).await, CELLS);
}

#[tokio::test]
async fn the_model_answers_every_cell_as_the_oracle_does() {
    assert_eq!(try_every_cell(ModelStore::new).await, CELLS);
}
