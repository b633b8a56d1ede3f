package tuskpoint_test

import (
	"testing"
	"time"

	"tuskpoint.dev/go/tuskpoint"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

func TestAnOfferIsWatchedAndAdoptedOnce(t *testing.T) {
	client, thread := dial(t), newThread()
	must(client.Save(within(t), thread, map[string]any{"n": 1}, nil))(t)
	agent := "agent of " + thread
	options := &tuskpoint.HandOffOptions{ToAgent: agent, ExpiresIn: time.Hour}
	for range 2 {
		must(client.HandOff(within(t), thread, options))(t)
	}
	var seen []*tuskpointv1.Handoff
	for offer, err := range client.WatchHandoffs(within(t), agent, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if seen = append(seen, offer); len(seen) == 2 {
			break
		}
	}
	want(t, "the thread", seen[0].GetDescriptor_().GetThreadId(), thread)
	want(t, "it expires", seen[0].GetExpireTime() != nil, true)

	id := seen[0].GetHandoffId()
	worker := &tuskpoint.AdoptOfferOptions{RequestID: "worker of " + id}
	adoption := must(client.AdoptOffer(within(t), id, thread+"-adopted", worker))(t)
	again := must(client.AdoptOffer(within(t), id, thread+"-adopted", worker))(t)
	want(t, "the repeat", *again, *adoption)
	_, err := client.AdoptOffer(within(t), id, "", nil)
	wantError(t, err, tuskpoint.ErrPreconditionFailed, "HANDOFF_CLOSED")

	withdrawn := must(client.WithdrawHandoff(within(t), seen[1].GetHandoffId()))(t)
	want(t, "the state", withdrawn.GetState(), tuskpoint.OfferWithdrawn)
	_, err = client.WithdrawHandoff(within(t), "unknown")
	wantError(t, err, tuskpoint.ErrNotFound, "HANDOFF_NOT_FOUND")

	var states []tuskpoint.OfferState
	filter := &tuskpoint.OfferFilter{ToAgent: &agent, ThreadID: thread}
	for offer, err := range client.ListHandoffs(within(t), filter) {
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, offer.GetState())
	}
	want(t, "the number of offers", len(states), 2)
	want(t, "the first state", states[0], tuskpoint.OfferAdopted)
	want(t, "the second state", states[1], tuskpoint.OfferWithdrawn)
}
