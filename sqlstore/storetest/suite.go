package storetest

import (
	"slices"
	"testing"
)

// Run runs the suite on logs created by open, each test on its own; only those with these names, if there are any.
func Run(t *testing.T, open Opener, names ...string) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, open Opener)
	}{
		{"Order", testOrder},
		{"GroupOfOneCommit", testGroupOfOneCommit},
		{"GroupOfWaitingWrites", testGroupOfWaitingWrites},
		{"GroupCreatesWhatItReplaces", testGroupCreatesWhatItReplaces},
		{"GroupWithAPoisonedWrite", testGroupWithAPoisonedWrite},
		{"Transaction", testTransaction},
		{"TransactionConflicts", testTransactionConflicts},
		{"TransactionLimits", testTransactionLimits},
		{"TransactionChoices", testTransactionChoices},
		{"TransactionAtOnce", testTransactionAtOnce},
		{"TransactionAndHeartbeats", testTransactionAndHeartbeats},
		{"TransactionsAreWhole", testTransactionsAreWhole},
		{"TransactionsInHistory", testTransactionsInHistory},
		{"AmbiguousTransactions", testAmbiguousTransactions},
		{"Snapshots", cachedAndNot(testSnapshots)},
		{"OldRevisions", cachedAndNot(testOldRevisions)},
		{"Pages", testPages},
		{"EmptyLog", cachedAndNot(testEmptyLog)},
		{"ReplayBoundary", testReplayBoundary},
		{"ReplayOfLargeChanges", testReplayOfLargeChanges},
		{"ReplayOfSelections", testReplayOfSelections},
		{"ReplayReadsWhatConcerns", testReplayReadsWhatConcerns},
		{"Await", testAwait},
		{"OnNext", testOnNext},
		{"CatchUp", testCatchUp},
		{"CatchUpBehindCompaction", testCatchUpBehindCompaction},
		{"SlowSubscriber", testSlowSubscriber},
		{"SlowSubscriberOfLargeObjects", testSlowSubscriberOfLargeObjects},
		{"AmbiguousCommits", testAmbiguousCommits},
		{"Heartbeats", testHeartbeats},
		{"HeartbeatInterval", testHeartbeatInterval},
		{"HeartbeatsWhileCommitsFail", testHeartbeatsWhileCommitsFail},
		{"RefusedHeartbeats", testRefusedHeartbeats},
		{"Expiry", testExpiry},
		{"Retention", testRetention},
		{"Compaction", testCompaction},
		{"RetentionRows", testRetentionRows},
		{"Stats", testStats},
		{"HeldBack", testHeldBack},
		{"CompactedElsewhere", testCompactedElsewhere},
		{"Unreachable", testUnreachable},
		{"FullDisk", testFullDisk},
		{"Bounds", testBounds},
		{"Unread", testUnread},
		{"Clock", testClock},
		{"ClocksOfServers", testClocksOfServers},
		{"Past", testPast},
		{"PastGrows", testPastGrows},
		{"PastOfOthers", testPastOfOthers},
		{"Life", testLife},
		{"Forget", testForget},
		{"Purge", testPurge},
		{"PurgeWhileMoving", testPurgeWhileMoving},
		{"Load", testLoad},
		{"Restore", testRestore},
		{"Restart", testRestart},
		{"Close", testClose},
		{"Selectors", cachedAndNot(testSelectors)},
		{"Topics", testTopics},
		{"Choices", testChoices},
		{"SmallCache", testSmallCache},
		{"CacheAfterAmbiguousCommit", testCacheAfterAmbiguousCommit},
		{"CacheOfOtherProcess", testCacheOfOtherProcess},
		{"CacheFreesReplaced", testCacheFreesReplaced},
	} {
		if len(names) > 0 && !slices.Contains(names, test.name) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, open)
		})
	}
}
