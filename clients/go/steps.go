package tuskpoint

import "tuskpoint.dev/go/tuskpoint/tuskpointv1"

// Step is the step that led to a checkpoint, and the tasks that start at the checkpoint: Nodes that
// ran, ChangedChannels, NextNodes, Questions, Failures and Tokens. Tokens is nil if no message
// reports tokens; its getters then return 0.
type Step = tuskpointv1.Step

// Question is a question for a person, an interrupt of a task: InterruptId, Node, Text and whether
// it is Answered. Threads have their first open question.
type Question = tuskpointv1.Question

// Failure is the failure of a task: Node, Type and Message of the error. Threads have their first
// failure.
type Failure = tuskpointv1.Failure

// TokenUsage is the number of tokens that messages report as usage_metadata: InputTokens of prompts
// and OutputTokens of answers.
type TokenUsage = tuskpointv1.TokenUsage
