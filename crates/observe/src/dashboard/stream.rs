//! A snapshot each second, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, Sse};
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::time::{MissedTickBehavior, interval};

use super::DashboardState;

const SECOND: Duration = Duration::from_secs(1);

/// All figures of the page, each second until the page disconnects or the server stops.
#[utoipa::path(
    get,
    path = "/dashboard/events",
    tag = "dashboard",
    operation_id = "dashboardEvents",
    security(("token" = [])),
    responses((status = 200, description = "Snapshots as server-sent events.", body = String,
               content_type = "text/event-stream"))
)]
pub(super) async fn events(
    State(state): State<DashboardState>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let mut ticks = interval(SECOND);
    // A page that reads slowly gets the newest figures, not those that it missed.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let closed = state.analytics.watch().closed();
    Sse::new(unfold((state, ticks, closed), |(state, mut ticks, mut closed)| async move {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = closed.wait_for(|closed| *closed) => return None,
        }
        let snapshot = serde_json::to_string(&state.analytics.watch().snapshot()).ok()?;
        Some((Ok(Event::default().data(snapshot)), (state, ticks, closed)))
    }))
}
