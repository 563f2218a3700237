// Stats: counters of what a client did.

package dlease

// #include <dlease.h>
import "C"

// Stats are counters of what a client did since it was opened, and what it has
// open now.
type Stats struct {
	Grants             uint64 // leases granted, also by hand-over
	Waits              uint64 // acquires that had to wait
	TimeOuts           uint64 // waits that ended at their deadline while someone else had the lock
	HandOvers          uint64 // leases handed from one caller of this process to the next in one commit
	Rings              uint64 // releases that rang the bell for the next process
	Looks              uint64 // looks at the rows that nobody rings for, each at any number of keys
	Renewals           uint64 // renewals that the server was asked for
	Releases           uint64 // releases that did what they were to do
	ReleaseFailures    uint64 // releases that failed: to be tried again, or done when the lock is freed
	LostExpired        uint64 // grants lost since their time ran out
	LostUnreachable    uint64 // grants lost since the server was not reached
	LostTaken          uint64 // grants lost to another owner
	LostRowGone        uint64 // grants lost since their row was gone
	LostOtherwise      uint64 // grants lost otherwise
	RetriesBlocked     uint64 // statements tried again since a row, a table or the server was locked
	RetriesUnavailable uint64 // statements tried again since the server let nobody in, or took no writes
	RetriesLost        uint64 // statements tried again since their connection was lost
	GateFallbacks      uint64 // times that the server was found to refuse GET_LOCK: rows are polled
	Resolved           uint64 // acquires whose reply was lost and that were found out about
	Panics             uint64 // panics in the client's own threads, which went on
	Waiting            uint64 // callers that wait now
	Connections        uint64 // connections for statements that are open now
	WaitingConnections uint64 // connections that wait at the server, or keep a bell, now
}

// Stats reads the counters. Does not block; all are 0 once the client is closed.
func (c *Client) Stats() Stats {
	handle, err := c.enter()
	if err != nil {
		return Stats{}
	}
	defer c.leave()
	s := C.dl_stats{size: C.sizeof_dl_stats}
	C.dl_client_stats(handle, &s)
	return Stats{
		Grants:             uint64(s.grants),
		Waits:              uint64(s.waits),
		TimeOuts:           uint64(s.time_outs),
		HandOvers:          uint64(s.hand_overs),
		Rings:              uint64(s.rings),
		Looks:              uint64(s.looks),
		Renewals:           uint64(s.renewals),
		Releases:           uint64(s.releases),
		ReleaseFailures:    uint64(s.release_failures),
		LostExpired:        uint64(s.lost_expired),
		LostUnreachable:    uint64(s.lost_unreachable),
		LostTaken:          uint64(s.lost_taken),
		LostRowGone:        uint64(s.lost_row_gone),
		LostOtherwise:      uint64(s.lost_otherwise),
		RetriesBlocked:     uint64(s.retries_blocked),
		RetriesUnavailable: uint64(s.retries_unavailable),
		RetriesLost:        uint64(s.retries_lost),
		GateFallbacks:      uint64(s.gate_fallbacks),
		Resolved:           uint64(s.resolved),
		Panics:             uint64(s.panics),
		Waiting:            uint64(s.waiting),
		Connections:        uint64(s.connections),
		WaitingConnections: uint64(s.waiting_connections),
	}
}
